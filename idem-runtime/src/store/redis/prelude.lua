-- What the scripts share; it stands in front of each of them. Each is atomic: a script is one moment.
--
-- KEYS[1]  the record
--
-- Every script may return
--         {'V', start}            not a record of ours; its first bytes
--         {'I'}                   a record without an expiry
--
-- Header, 1-based: 1 layout, 2 state, 3-18 owner, 19-25 fence, 26-27 attempts, 28-31 lease, schema
-- or cause, 32-36 retain, 37-52 fingerprint, 53-56 types of the answers. Numbers are big-endian; a
-- double holds them exactly.
-- Lease left = lease - age, age = retain - life: no clock of a client enters.

local sub, byte = string.sub, string.byte
-- A record of at most so many bytes passes through a script; a larger one would block the server
-- longer than a GET of it takes.
local MOST = 8247
local HEADER = 56
local NO_PRINT = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local NO_TYPES = '\0\0\0\0'

local function num(s)
  local n = 0
  for i = 1, #s do n = n * 256 + byte(s, i) end
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
  -- Pending, and somebody waits: the same for everybody but who tells of its end, see wait.lua.
  local waited = sub(r, 1, 2) == '2W'
  if waited then r = '2P' .. sub(r, 3) end
  local state = sub(r, 2, 2)
  if sub(r, 1, 1) ~= '2' or #r < HEADER or not string.find('PQRDEUT', state, 1, true) then
    return nil, {'V', sub(r, 1, HEADER)}
  end
  local life = redis.call('PTTL', KEYS[1])
  if life < 0 then return nil, {'I'} end
  local claimed, left = state == 'P' or state == 'Q', 0
  if claimed then left = math.max(num(sub(r, 28, 31)) - math.max(num(sub(r, 32, 36)) - life, 0), 0) end
  return {
    bytes = r, life = life, state = state, waited = waited, owner = sub(r, 3, 18), print = sub(r, 37, 52),
    claimed = claimed, left = left, done = not claimed and state ~= 'R',
  }
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

-- The types that are kept: those of who writes, if it says them.
local function latest(types, asked)
  if asked == NO_TYPES then return types end
  return asked
end

-- A record that counts: {'D', life, record}, the life that it has left in milliseconds; or
-- {'G', life, bytes} where it is so large that it is read with GET.
local function answer(seen)
  if #seen.bytes > MOST then return {'G', seen.life, redis.call('STRLEN', KEYS[1])} end
  return {'D', seen.life, seen.bytes}
end
