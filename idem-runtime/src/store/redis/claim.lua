-- Asks for the right to run the body, or to find out whether an earlier attempt had its effect.
--
-- ARGV[1]  the header that the caller proposes, 56 bytes: reconciling (Q) if it can find out, S if it
--          found out that nothing landed, else pending; state, fence and attempts are set here
-- ARGV[2]  how long the record lives, milliseconds
-- ARGV[3]  attempts after which nothing is granted; 0 for no limit
-- ARGV[4]  may be missing: T in it, a record of values of another type is taken over; R in it, the claim needs a
--          record and begins none
--
-- Returns {'A', header}           granted: the body if that is pending, else to find out
--         {'F', header}           the same, and the record has its fingerprint from this claim
--         {'B', left}             another's claim, for so many milliseconds; 0 for one's own that
--                                 comes after its release
--         {'D', …}, {'G', …}      done or unknown, see `answer`
--         {'N'}                   no record, and the claim needs one
--         {'M'}                   another request has this key
--         {'O'}                   a function whose values have another type has it, and no answer
--         {'X', attempts}         no attempts left
-- and with each of these, last, the server's time in microseconds.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function dated(reply)
  reply[#reply + 1] = now
  return reply
end
local asked, max, words = ARGV[1], tonumber(ARGV[3]), ARGV[4] or ''
local reconciles, owner, print = sub(asked, 2, 2) == 'Q', sub(asked, 3, 18), sub(asked, 37, 52)
local starts, types = sub(asked, 2, 2) == 'S', sub(asked, 53, 56)
-- Whether values have one type, by the first half of the types, as far as both are known.
local function alike(kept)
  local value, other = sub(kept, 1, 2), sub(types, 1, 2)
  return value == other or value == '\0\0' or other == '\0\0'
end
local state, fence, attempts, again = 'P', 0, 0, false
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen and (starts or string.find(words, 'R', 1, true)) then
  -- Writes nothing, and is refused by a replica: what is absent there may be on the primary.
  redis.call('PEXPIRE', KEYS[1], 1)
  return dated({'N'})
end
if seen then
  if not same(seen.print, print) then return dated({'M'}) end
  local mine = seen.owner == owner
  -- What was found out holds as long as nobody else could have run since.
  if starts and not seen.done and not (mine and seen.claimed) then return dated({'B', seen.left}) end
  -- A claim that comes after its own release is granted nothing: whoever sent it is gone.
  if mine and seen.state == 'R' or not mine and seen.left > 0 then return dated({'B', seen.left}) end
  local unknown = not mine and (seen.state == 'U' or seen.state == 'Q')
  if (seen.done or unknown) and not (unknown and reconciles) then return dated(answer(seen)) end
  local kept = sub(seen.bytes, 53, 56)
  -- Two functions share the key: neither runs under a record of the other.
  if not mine and not string.find(words, 'T', 1, true) and not alike(kept) then return dated({'O'}) end
  fence, attempts = num(sub(seen.bytes, 19, 25)), num(sub(seen.bytes, 26, 27))
  print, types = known(seen.print, print), latest(kept, types)
  -- Our own claim, sent again after its reply was lost. One that found out, and now asks for the
  -- body, is a new one.
  again = mine and (seen.state == 'P' or reconciles)
  if reconciles and (seen.state == 'Q' or not again and (unknown or attempts > 0)) then
    state = 'Q'
  elseif not again and max > 0 and attempts >= max then
    return dated({'X', attempts})
  end
end
if not again then
  fence = math.max(fence + 1, now)
  if state == 'P' then attempts = math.min(attempts + 1, 65535) end
end
-- Whoever waits for one that finds out waits for its body as well, and could not mark that.
local waited = state == 'P' and seen and (seen.waited or seen.state == 'Q')
local mark = waited and 'W' or state
local w = '2' .. mark .. owner .. be(fence, 7) .. be(attempts, 2) .. sub(asked, 28, 36) .. print .. types
if seen then
  redis.call('SET', KEYS[1], w, 'PX', ARGV[2])
elseif not redis.call('SET', KEYS[1], w, 'PX', ARGV[2], 'NX') then
  return {'V', ''} -- an empty string stands there
end
return dated({seen and seen.print ~= NO_PRINT and 'A' or 'F', w})
