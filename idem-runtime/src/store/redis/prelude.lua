-- What the scripts share; it stands in front of each of them. Each is atomic: a script is one moment.
--
-- KEYS[1]  the record
--
-- Every script may return
--         {'V', start}            not a record of ours; its first bytes
--         {'I'}                   a record without an expiry
--
-- Header, 1-based: 1 layout, 2 state, 3-18 owner, 19-25 fence, 26-27 attempts, 28-31 lease, schema
-- or cause, 32-36 retain, 37-52 fingerprint. Numbers are big-endian; a double holds them exactly.
-- Lease left = lease - age, age = retain - life: no clock of a client enters.

-- A record of at most so many bytes passes through a script; a larger one would block the server
-- longer than a GET of it takes.
local MOST = 8243
local HEADER = 52
local NO_PRINT = string.rep('\0', 16)
-- The cause of an unknown outcome that somebody was to find out about and did not.
local UNDECIDED = '\0\0\0\4'

local function num(s)
  local n = 0
  for i = 1, #s do n = n * 256 + string.byte(s, i) end
  return n
end

local function be(n, width)
  local s = ''
  for _ = 1, width do
    local low = n % 256
    s = string.char(low) .. s
    n = (n - low) / 256
  end
  return s
end

-- The record, from its first `most` bytes; nil where there is nothing, or an empty string. What is
-- not ours to touch comes second, as the answer that says so.
local function look(most)
  local r = redis.call('GETRANGE', KEYS[1], 0, most - 1)
  if r == '' then return nil end
  local state = string.sub(r, 2, 2)
  if string.sub(r, 1, 1) ~= '1' or #r < HEADER or not string.find('PQRDEUT', state, 1, true) then
    return nil, {'V', string.sub(r, 1, HEADER)}
  end
  local life = redis.call('PTTL', KEYS[1])
  if life < 0 then return nil, {'I'} end
  local claimed, word, retain = state == 'P' or state == 'Q', string.sub(r, 28, 31), string.sub(r, 32, 36)
  return {
    bytes = r, life = life, state = state, owner = string.sub(r, 3, 18),
    fence = string.sub(r, 19, 25), attempts = string.sub(r, 26, 27), word = word, retain = retain,
    print = string.sub(r, 37, 52), claimed = claimed, done = not claimed and state ~= 'R',
    left = claimed and math.max(num(word) - math.max(num(retain) - life, 0), 0) or 0,
  }
end

-- Where `look` saw nothing and the script writes nothing.
local function nothing()
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'V', ''} end
  return {'N'}
end

local function same(print, asked)
  return print == asked or print == NO_PRINT or asked == NO_PRINT
end

-- The fingerprint that is kept: a caller that does not compare must not switch the comparison off
-- for others.
local function known(print, asked)
  if print == NO_PRINT then return asked end
  return print
end

-- A record that counts: {'D', life, record}, the life that it has left in milliseconds; or
-- {'G', life, bytes} where it is so large that it is read with GET.
local function answer(seen)
  if #seen.bytes > MOST then return {'G', seen.life, redis.call('STRLEN', KEYS[1])} end
  return {'D', seen.life, seen.bytes}
end

-- Tells who waits for the key. The record is written by then, and stays where the user has no right
-- to the channel.
local function tell()
  redis.pcall(PUBLISH, KEYS[1], '')
end

-- Puts `record` in the place of what was seen: the higher fence and the known fingerprint stay.
local function settle(seen, record, attempts, life)
  local fence = string.sub(record, 19, 25)
  if num(fence) < num(seen.fence) then fence = seen.fence end
  local kept = fence .. attempts .. string.sub(record, 28, 36) .. known(seen.print, string.sub(record, 37, 52))
  if kept ~= string.sub(record, 19, HEADER) then
    record = string.sub(record, 1, 18) .. kept .. string.sub(record, HEADER + 1)
  end
  redis.call('SET', KEYS[1], record, 'PX', life)
  tell()
end
