-- Releases a claim. The record keeps its remaining life: it carries attempts and fence. A record of
-- which nothing remains lives for the claim's lease, and for at least 10 seconds: see `transition::release`.
--
-- ARGV[1]  the owner that releases, 16 bytes
-- ARGV[2]  what remains: 0 the request, 1 the attempt, which counts as abandoned, 2 nothing
-- ARGV[3]  optional: the journal that the record keeps, in place of the one that it has
-- ARGV[4]  with ARGV[3]: the layout of a record with this journal, which the fast path takes as it is
-- ARGV[5]  optional: the journal that an operator has seen; if it is another one, nothing changes
--
-- Returns {'C'} free, or unknown as before, now or since an earlier send; {'S'} held by another owner or
--         finished, nothing changed; {'N'} no record

-- Cause of an unknown outcome that a reconciliation did not decide.
local UNDECIDED = '\0\0\0\4'

local seen, refusal = look(HEADER)
if refusal then return refusal end
if not seen then return nothing() end
if seen.owner ~= ARGV[1] then return {'S'} end
if seen.state == 'R' or seen.state == 'U' and sub(seen.bytes, 28, 31) == UNDECIDED then return {'C'} end
if seen.done or ARGV[5] and ARGV[5] ~= journal(seen) then return {'S'} end
local state, word, attempts = 'R', '\0\0\0\0', num(sub(seen.bytes, 26, 27))
-- The retain time, the fingerprint, and the types of the answers.
local rest, life = sub(seen.bytes, 32, 56), seen.life
if seen.state == 'Q' then
  -- The reconciliation did not decide: the outcome stays unknown.
  state, word = 'U', UNDECIDED
elseif ARGV[2] ~= '1' then
  attempts = math.max(attempts - 1, 0)
  if ARGV[2] == '2' and attempts == 0 and not seen.steps then
    life = math.max(num(sub(seen.bytes, 28, 31)), 10000)
    rest = be(life, 5) .. NO_PRINT .. NO_TYPES
  end
end
local kept = ARGV[3] or journal(seen)
local w = layout_of(kept) .. state .. sub(seen.bytes, 3, 25) .. be(attempts, 2) .. word .. rest .. kept
begin(seen.life)
-- Not KEEPTTL: on Redis 6 the clock advances while a script runs, and a record that expires at this moment
-- would be written again without an expiry, and live for ever.
redis.call('SET', KEYS[1], w, 'PX', string.format('%.0f', math.max(life, 1)))
tell()
return {'C'}
