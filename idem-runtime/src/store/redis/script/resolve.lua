-- Resolves a record: replaces it on behalf of an operator, if it is still the one that was seen.
--
-- ARGV[1]  the header that was seen, 56 bytes
-- ARGV[2]  the new record: done, header and answer; or the header of a released one
-- ARGV[3]  its life, milliseconds
-- ARGV[4]  the channel on which caches receive resolutions
-- ARGV[5]  optional: the journal that was seen; of a claim, whose owner may have appended since
--
-- Returns {'C'} replaced, now or by an earlier send; {'S'} another record is stored, nothing changed;
--         {'B', left} the key is claimed, and the lease has so many milliseconds left; {'N'} no record
local seen, refusal = look(HEADER)
if refusal then return refusal end
if not seen then return nothing() end
-- Each resolution has an owner of its own.
if seen.owner == sub(ARGV[2], 3, 18) then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', seen.life)) -- written again, as in complete.lua
  return {'C'}
end
if seen.bytes ~= ARGV[1] then return {'S'} end
if seen.left > 0 then return {'B', seen.left} end
local claimed = seen.state == 'P' or seen.state == 'W' or seen.state == 'Q'
if claimed and ARGV[5] and ARGV[5] ~= journal(seen) then return {'S'} end
local attempts = sub(seen.bytes, 26, 27)
if sub(ARGV[2], 2, 2) == 'R' then attempts = '\0\0' end -- the key begins anew
settle(seen, ARGV[2], attempts, sub(ARGV[2], 53, 56), ARGV[3])
-- Not SPUBLISH: a listener with copies is subscribed on a single node.
redis.pcall('PUBLISH', ARGV[4], KEYS[1])
return {'C'}
