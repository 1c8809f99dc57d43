-- Appends to the journal of a claim, and renews its lease.
--
-- ARGV[1]  the header of the claim as granted, 56 bytes
-- ARGV[2]  life of a record that is written again, milliseconds
-- ARGV[3]  number of bytes of the journal that are not sent, because the record has them
-- ARGV[4]  the rest of the journal
--
-- Returns {'C'} the record has the whole journal; {'L'} the record was lost, and is written again; {'S'} held by
--         another owner, or ended; {'K'} the record lacks bytes that were not sent; each reply ends with the
--         server's time in microseconds
local seen, refusal = look(HEADER)
if refusal then return refusal end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local known, rest = tonumber(ARGV[3]), ARGV[4]
if not seen then
  if known > 0 then return {'K', now} end
  begin()
  if redis.call('SET', KEYS[1], '3' .. sub(ARGV[1], 2) .. rest, 'PX', ARGV[2], 'NX') then return {'L', now} end
  return {'V', ''}
end
if not seen.claimed or seen.owner ~= sub(ARGV[1], 3, 18) then return {'S', now} end
local life, has = string.format('%.0f', num(sub(seen.bytes, 32, 36))), 0
if seen.journal then has = redis.call('STRLEN', KEYS[1]) - HEADER end
if has < known then return {'K', now} end
begin(seen.life)
-- An earlier send may have come first. The owner only appends, so that the longer journal is right.
if has >= known + #rest then
  redis.call('PEXPIRE', KEYS[1], life)
else
  local whole = '3' .. sub(seen.bytes, 2) .. journal(seen) .. sub(rest, has - known + 1)
  redis.call('SET', KEYS[1], whole, 'PX', life)
end
return {'C', now}
