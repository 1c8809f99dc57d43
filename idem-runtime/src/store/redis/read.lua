-- Reads a record and its life at one moment. Changes nothing.
--
-- KEYS[1]  the record
--
-- Returns {'N'} no record; {'D', life, record}, life in milliseconds; {'V', ''} an empty string;
--         {'I'} a record without an expiry
local r = redis.call('GET', KEYS[1])
if not r then return {'N'} end
if r == '' then return {'V', ''} end
local life = redis.call('PTTL', KEYS[1])
if life < 0 and string.sub(r, 1, 1) == '2' and #r >= 56 then return {'I'} end
return {'D', life, r}
