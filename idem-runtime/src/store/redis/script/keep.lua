-- Stores a copy of a record of another store, if the copy is of a later claim (by the fence) or of the same
-- claim; a finished copy is not replaced by its own claim. Watchers are notified of an answer's copy.
--
-- ARGV[1]  the copy: header and answer
-- ARGV[2]  its life, milliseconds
--
-- Returns {'C'} stored; {'S'} the stored copy is newer
local seen, refusal = look(HEADER)
if refusal then return refusal end
local state, fence = sub(ARGV[1], 2, 2), num(sub(ARGV[1], 19, 25))
local code = 'C'
if not seen then
  if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return {'V', ''} end
else
  local last = num(sub(seen.bytes, 19, 25))
  if fence > last or fence == last and seen.claimed then
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  else
    code = 'S'
  end
end
if string.find('DEUT', state, 1, true) then tell() end
return {code}
