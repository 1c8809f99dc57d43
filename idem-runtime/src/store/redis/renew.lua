-- Starts the lease of a claim again: a record's lease is measured from when its life was set.
-- Atomic: a script is one moment.
--
-- KEYS[1]  the record (header: see claim.lua)
-- ARGV[1]  the header of the claim as it was granted, 52 bytes
-- ARGV[2]  how long the record lives, milliseconds
--
-- Returns {'C'} renewed; {'L'} there was no record, and the claim was written again; {'S'} another's
--         or over; {'V', start}, {'I'} as in claim.lua
local r = redis.call('GETRANGE', KEYS[1], 0, 51)
if r == '' then
  if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return {'L'} end
  return {'V', ''}
end
local state = string.sub(r, 2, 2)
if string.sub(r, 1, 1) ~= '1' or #r < 52 or not string.find('PRDEUT', state, 1, true) then
  return {'V', r}
end
if redis.call('PTTL', KEYS[1]) < 0 then return {'I'} end
if state ~= 'P' or string.sub(r, 3, 18) ~= string.sub(ARGV[1], 3, 18) then return {'S'} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'C'}
