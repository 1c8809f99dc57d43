-- Stores an answer.
--
-- ARGV[1]  the finished record: header and answer
-- ARGV[2]  how long it lives, milliseconds
--
-- Returns {'C', late}             stored; late is 1 where the claim had lapsed or was lost
--         {'D', …}, {'G', …}      another attempt's answer is there and counts, see `answer`
--         {'S', left}             another attempt holds the claim, for so many milliseconds; 0 where
--                                 that has lapsed and the outcome is no success
--         {'M'}                   another request has this key
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen then
  -- Lost or expired: what was done is still the truth.
  begin()
  if not redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return {'V', ''} end
  tell()
  return {'C', 1}
end
local outcome, mine = sub(ARGV[1], 2, 2), seen.owner == sub(ARGV[1], 3, 18)
local success = outcome == 'D' or outcome == 'T'
if not same(seen.print, sub(ARGV[1], 37, 52)) then return {'M'} end
-- A success that exists is what everybody wanted to know where the outcome is unknown.
if seen.done and not (seen.state == 'U' and success) then
  if mine then
    -- Our own completion, sent again. Written again, too: who waits for replicas waits for a write.
    redis.call('PEXPIRE', KEYS[1], string.format('%.0f', seen.life))
    return {'C', 0}
  end
  return answer(seen)
end
if seen.claimed and not mine and (seen.left > 0 or not success) then return {'S', seen.left} end
-- Ours; or given back by a later attempt; or a success whose successor's lease has lapsed: better
-- than another run. An error is not: the successor may be alive and succeed.
settle(seen, ARGV[1], sub(seen.bytes, 26, 27), latest(sub(seen.bytes, 53, 56), sub(ARGV[1], 53, 56)), ARGV[2])
return {'C', mine and 0 or 1}
