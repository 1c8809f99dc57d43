-- Stores an answer.
--
-- ARGV[1]  the finished record: header and answer
-- ARGV[2]  its life, milliseconds
--
-- Returns {'C', late}             stored; late is 1 where the claim had expired or was lost
--         {'D', …}, {'G', …}      another attempt's answer is stored and counts, see `answer`
--         {'S', left}             another attempt holds the claim, which has so many milliseconds left; 0 where
--                                 it has expired and the outcome is no success
--         {'M'}                   the key belongs to another request: the fingerprints differ
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen then
  -- Lost or expired: the completed outcome is still true.
  begin()
  if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return {'V', ''} end
  tell()
  return {'C', 1}
end
local outcome, mine = sub(ARGV[1], 2, 2), seen.owner == sub(ARGV[1], 3, 18)
local success = outcome == 'D' or outcome == 'T'
if not same(seen.print, sub(ARGV[1], 37, 52)) then return {'M'} end
-- A stored answer counts, except that a success replaces an unknown outcome.
if seen.done and not (seen.state == 'U' and success) then
  if mine then
    -- The owner's own completion, sent again. The record is written again, because `WAIT` needs a write to confirm.
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', seen.life))
    return {'C', 0}
  end
  return answer(seen)
end
if seen.claimed and not mine and (seen.left > 0 or not success) then return {'S', seen.left} end
-- The claim is the owner's; or a later attempt released it; or its lease has expired and the outcome is a
-- success, which is better than another run. An error is not: the later owner may be alive and succeed.
settle(seen, ARGV[1], sub(seen.bytes, 26, 27), latest(sub(seen.bytes, 53, 56), sub(ARGV[1], 53, 56)), ARGV[2])
return {'C', mine and 0 or 1}
