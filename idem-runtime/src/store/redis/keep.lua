-- Keeps a copy of a record that stands in another store. Of later claims, by the fence, or of the same
-- claim; one that is done is not replaced by its own claim. The copy of an answer is told of.
--
-- ARGV[1]  the copy: header and answer
-- ARGV[2]  how long it lives, milliseconds
--
-- Returns {'C'} kept; {'S'} what stands there is newer
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
