-- Reads a record and its life atomically, without a write.
--
-- KEYS[1]  the record
-- ARGV[1]  largest length of the record, bytes
--
-- Returns {'N'} no record; {'D', life, record}, life in milliseconds; {'L', life, bytes} a larger record;
--         {'V', ''} an empty string; {'I'} a record without an expiry
local bytes = redis.call('STRLEN', KEYS[1])
if bytes == 0 then
  if redis.call('EXISTS', KEYS[1]) == 0 then return {'N'} end
  return {'V', ''}
end
local life = redis.call('PTTL', KEYS[1])
if bytes > tonumber(ARGV[1]) then return {'L', life, bytes} end
local r = redis.call('GET', KEYS[1])
-- On Redis 6 the clock advances while a script runs.
if not r then return {'N'} end
if life < 0 and string.find(r, '^[234]') and #r >= 56 then return {'I'} end
return {'D', life, r}
