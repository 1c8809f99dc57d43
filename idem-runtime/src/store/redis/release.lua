-- Gives a key back. The record keeps the life that it has left: it carries counter and fence. One of which
-- nothing remains lives for the claim's lease, and for 10 seconds at least: see `transition::release`.
--
-- ARGV[1]  the owner that gives it back, 16 bytes
-- ARGV[2]  what remains: 0 the request, 1 the attempt, which counts as abandoned, 2 nothing
--
-- Returns {'C'} free, or unknown as before, now or since an earlier send; {'S'} another's, nothing
--         changed; {'N'} no record

-- The cause of an unknown outcome that somebody was to find out about and did not.
local UNDECIDED = '\0\0\0\4'

local seen, refusal = look(HEADER)
if refusal then return refusal end
if not seen then return nothing() end
if seen.owner ~= ARGV[1] then return {'S'} end
if seen.state == 'R' or seen.state == 'U' and sub(seen.bytes, 28, 31) == UNDECIDED then return {'C'} end
if seen.done then return {'S'} end
local state, word, attempts = 'R', '\0\0\0\0', num(sub(seen.bytes, 26, 27))
-- How long it was to be kept, the fingerprint, and the types of the answers.
local rest, life = sub(seen.bytes, 32, 56), seen.life
if seen.state == 'Q' then
  -- Whoever was to find out did not: nobody knows, as before.
  state, word = 'U', UNDECIDED
elseif ARGV[2] ~= '1' then
  attempts = math.max(attempts - 1, 0)
  if ARGV[2] == '2' and attempts == 0 then
    life = math.max(num(sub(seen.bytes, 28, 31)), 10000)
    rest = be(life, 5) .. NO_PRINT .. NO_TYPES
  end
end
local w = '2' .. state .. sub(seen.bytes, 3, 25) .. be(attempts, 2) .. word .. rest
begin(seen.life)
-- Not KEEPTTL: on Redis 6 the clock goes on while a script runs, and a record whose life ends just now
-- would be written again without one, and live for ever.
redis.call('SET', KEYS[1], w, 'PX', string.format('%.0f', math.max(life, 1)))
tell()
return {'C'}
