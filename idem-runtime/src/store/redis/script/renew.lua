-- Renews the lease of a claim: a record's lease is measured from the time at which its life was set.
--
-- ARGV[1]  the header of the claim as granted, 56 bytes
-- ARGV[2]  life of a record that is written again, milliseconds
--
-- Returns {'C'} renewed; {'L'} the record was lost, and the claim is written again; {'S'} held by another
--         owner, or ended; each reply ends with the server's time in microseconds
local seen, refusal = look(HEADER)
if refusal then return refusal end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
if not seen then
  if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return {'L', now} end
  return {'V', ''}
end
if not seen.claimed or seen.owner ~= sub(ARGV[1], 3, 18) then return {'S', now} end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', num(sub(seen.bytes, 32, 36))))
return {'C', now}
