-- Claims a key: grants the body or a reconciliation, or returns the stored record.
--
-- ARGV[1]  the proposed header, 56 bytes. Its state is reconciling (Q) if the caller can reconcile, S if a
--          reconciliation found that no effect landed, else pending; this script sets state, fence and attempts
-- ARGV[2]  life of the record, milliseconds
-- ARGV[3]  attempts after which nothing is granted; 0 for no limit
-- ARGV[4]  optional flags. T: a record whose values have another type is taken over; R: the claim requires a
--          record and creates none; L: a lapsed claim that is taken over is recorded in the journal
--
-- Returns {'A', header}           granted: the body if the header is pending, else a reconciliation; with a journal,
--                                 that follows
--         {'F', header}           the same, and the record has its fingerprint from this claim
--         {'B', left}             held by another claim, which has so many milliseconds left; 0 for the
--                                 caller's own claim that arrives after its release
--         {'D', …}, {'G', …}      done or unknown, see `answer`
--         {'N'}                   no record, and the claim requires one
--         {'M'}                   the key belongs to another request: the fingerprints differ
--         {'O'}                   the key belongs to a function whose values have another type, and has no answer
--         {'X', attempts}         no attempts left
-- Each reply ends with the server's time in microseconds.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local function dated(reply)
  reply[#reply + 1] = now
  return reply
end
local asked, max, words = ARGV[1], tonumber(ARGV[3]), ARGV[4] or ''
local reconciles, owner, print = sub(asked, 2, 2) == 'Q', sub(asked, 3, 18), sub(asked, 37, 52)
local starts, types = sub(asked, 2, 2) == 'S', sub(asked, 53, 56)
-- Adds an attempt to a journal; of more than 16, the first and the last ones remain: see `Journal::bounded`.
local function remember(kept, attempt)
  kept = kept .. attempt
  local at, places = 1, {}
  while at <= #kept do
    local length, kind = num(sub(kept, at, at + 3)), sub(kept, at + 4, at + 4)
    local after = at + 4 + length
    if length == 0 or after > #kept + 1 then return kept end
    if kind == 'a' or kind == 'l' then places[#places + 1] = {at, after} end
    at = after
  end
  for i = #places - 15, 2, -1 do
    kept = sub(kept, 1, places[i][1] - 1) .. sub(kept, places[i][2])
  end
  return kept
end
-- Whether the first halves of both types, the types of the values, are equal or unknown.
local function alike(kept)
  local value, other = sub(kept, 1, 2), sub(types, 1, 2)
  return value == other or value == '\0\0' or other == '\0\0'
end
local state, fence, attempts, again = 'P', 0, 0, false
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen and (starts or string.find(words, 'R', 1, true)) then
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'V', ''} end -- an empty string stands there
  -- A write without effect, which a replica refuses: a key absent on a replica may exist on the primary.
  redis.call('PEXPIRE', KEYS[1], 1)
  return dated({'N'})
end
if seen then
  if not same(seen.print, print) then return dated({'M'}) end
  local mine = seen.owner == owner
  -- A reconciliation's finding holds only while no other owner can have run since.
  if starts and not seen.done and not (mine and seen.claimed) then return dated({'B', seen.left}) end
  -- A claim that arrives after its own release is granted nothing: its caller is gone.
  if mine and seen.state == 'R' or not mine and seen.left > 0 then return dated({'B', seen.left}) end
  local unknown = not mine and (seen.state == 'U' or seen.state == 'Q')
  if (seen.done or unknown) and not (unknown and reconciles) then return dated(answer(seen)) end
  local kept = sub(seen.bytes, 53, 56)
  -- Two functions share the key: neither runs under a record of the other.
  if not mine and not string.find(words, 'T', 1, true) and not alike(kept) then return dated({'O'}) end
  fence, attempts = num(sub(seen.bytes, 19, 25)), num(sub(seen.bytes, 26, 27))
  print, types = known(seen.print, print), latest(kept, types)
  -- The caller's own claim, sent again after a lost reply. A reconciling owner that now claims the body makes
  -- a new claim.
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
-- Watchers of a reconciliation also wait for the body, and cannot have marked a Q record. The end of a record with a
-- journal is always notified.
local kept = seen and journal(seen) or ''
if seen and seen.state == 'P' and seen.owner ~= owner and string.find(words, 'L', 1, true) then
  -- See attempt.rs.
  kept = remember(kept, be(44, 4) .. 'l' .. seen.owner .. be(math.floor(now / 1000), 6) .. be(7, 4) .. '\0' ..
    sub(seen.bytes, 19, 27) .. string.rep('\0', 7))
end
local waited = state == 'P' and seen and kept == '' and (seen.waited or seen.state == 'Q')
local mark = waited and 'W' or state
local layout = kept == '' and '2' or seen.steps and '3' or '4'
local w = layout .. mark .. owner .. be(fence, 7) .. be(attempts, 2) .. sub(asked, 28, 36) .. print .. types
local reply = {seen and seen.print ~= NO_PRINT and 'A' or 'F', w}
if kept ~= '' then reply[3] = kept end
if seen then
  redis.call('SET', KEYS[1], w .. kept, 'PX', ARGV[2])
elseif not redis.call('SET', KEYS[1], w, 'PX', ARGV[2], 'NX') then
  return {'V', ''} -- an empty string stands there
end
return dated(reply)
