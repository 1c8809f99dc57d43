-- Shared functions, inserted before the scripts that change a record. Every script is atomic.
--
-- KEYS[1]  the record
--
-- Each of them may return
--         {'V', start}            no record of idem; the value's first bytes
--         {'I'}                   a record without an expiry
--
-- Header, 1-based: 1 layout (2; 3 with a journal of steps behind the header, 4 with one of attempts alone), 2 state, 3-18 owner, 19-25 fence, 26-27
-- attempts, 28-31 lease, schema or cause, 32-36 retain, 37-52 fingerprint, 53-56 types of the answers. Numbers are
-- big-endian; a double holds them exactly.
-- Lease left = lease - age, age = retain - life: no client clock enters.

local sub, byte = string.sub, string.byte
-- Largest record that passes through a script, in bytes; a larger one would block the server longer than
-- a GET of it does.
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

-- Decodes the record from its first `most` bytes; nil for an absent key or an empty string. The second
-- result is the reply for a value that is not a record of idem.
local function look(most)
  local r = redis.call('GETRANGE', KEYS[1], '0', most - 1)
  if r == '' then return nil end
  -- 2W is a pending record with a watcher: only the notification at its end differs, see wait.lua.
  local waited = sub(r, 1, 2) == '2W'
  if waited then r = '2P' .. sub(r, 3) end
  local layout, state = sub(r, 1, 1), sub(r, 2, 2)
  local steps = layout == '3'
  local known = string.find(steps and 'PQRU' or 'PQRDEUT', state, 1, true)
  if not string.find('234', layout, 1, true) or #r < HEADER or not known then
    return nil, {'V', sub(r, 1, HEADER)}
  end
  local life = redis.call('PTTL', KEYS[1])
  if life < 0 then return nil, {'I'} end
  local claimed, left = state == 'P' or state == 'Q', 0
  if claimed then left = math.max(num(sub(r, 28, 31)) - math.max(num(sub(r, 32, 36)) - life, 0), 0) end
  return {
    bytes = r, life = life, state = state, waited = waited, owner = sub(r, 3, 18), print = sub(r, 37, 52),
    claimed = claimed, left = left, done = not claimed and state ~= 'R', steps = steps,
    -- A journal that follows the header, and not an answer.
    journal = layout ~= '2' and string.find('PQRU', state, 1, true) ~= nil,
  }
end

-- The journal behind the header.
local function journal(seen)
  if not seen.journal then return '' end
  return redis.call('GETRANGE', KEYS[1], HEADER, -1)
end

local function same(print, asked)
  return print == asked or print == NO_PRINT or asked == NO_PRINT
end

-- The fingerprint to store: a caller that does not compare fingerprints must not switch the comparison off
-- for others.
local function known(print, asked)
  if print == NO_PRINT then return asked end
  return print
end

-- The types to store: the writer's, if it gives any.
local function latest(types, asked)
  if asked == NO_TYPES then return types end
  return asked
end

-- The reply for a record that counts: {'D', life, record}, with the life left in milliseconds; or
-- {'G', life, bytes} for a record so large that the client reads it with GET. A journal behind the header is not part
-- of it.
local function answer(seen)
  if seen.journal then return {'D', seen.life, '2' .. sub(seen.bytes, 2, HEADER)} end
  if #seen.bytes > MOST then return {'G', seen.life, redis.call('STRLEN', KEYS[1])} end
  return {'D', seen.life, seen.bytes}
end
