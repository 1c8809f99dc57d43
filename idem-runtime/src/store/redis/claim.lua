-- Asks for the right to run the body. Atomic: a script is one moment.
--
-- KEYS[1]  the record
-- ARGV[1]  the pending header that the caller proposes, 52 bytes; fence and attempts are set here
-- ARGV[2]  how long the record lives, milliseconds
-- ARGV[3]  attempts after which nothing is granted; 0 for no limit
--
-- Returns {'A', header}           granted
--         {'B', left}             another's claim, for so many milliseconds
--         {'D', life, record}     done; the life that the record has left, milliseconds
--         {'G', life, bytes}      done, and so large that it is read with GET
--         {'M'}                   another request has this key
--         {'X', attempts}         no attempts left
--         {'V', start}            not a record of ours; its first bytes
--         {'I'}                   a record without an expiry
--
-- Header, 1-based: 1 layout, 2 state, 3-18 owner, 19-25 fence, 26-27 attempts, 28-31 lease or
-- schema, 32-36 retain, 37-52 fingerprint. Numbers are big-endian; a double holds them exactly.
-- Lease left = lease - age, age = retain - life: no clock of a client enters.
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

local mine, max = ARGV[1], tonumber(ARGV[3])
local print, fence, attempts, again = string.sub(mine, 37, 52), 0, 0, false
-- Up to 8 KiB of an answer pass through the script; a larger one would block the server longer
-- than a GET of it takes.
local r = redis.call('GETRANGE', KEYS[1], 0, 8243)
if r ~= '' then
  local state = string.sub(r, 2, 2)
  if string.sub(r, 1, 1) ~= '1' or #r < 52 or not string.find('PRDEUT', state, 1, true) then
    return {'V', string.sub(r, 1, 52)}
  end
  local life = redis.call('PTTL', KEYS[1])
  if life < 0 then return {'I'} end
  local theirs, none = string.sub(r, 37, 52), string.rep('\0', 16)
  if theirs ~= print and theirs ~= none and print ~= none then return {'M'} end
  if state ~= 'P' and state ~= 'R' then
    if #r == 8244 then return {'G', life, redis.call('STRLEN', KEYS[1])} end
    return {'D', life, r}
  end
  if state == 'P' then
    -- Our own claim, sent again after its reply was lost.
    again = string.sub(r, 3, 18) == string.sub(mine, 3, 18)
    local left = num(string.sub(r, 28, 31)) - math.max(num(string.sub(r, 32, 36)) - life, 0)
    if not again and left > 0 then return {'B', left} end
  end
  fence, attempts = num(string.sub(r, 19, 25)), num(string.sub(r, 26, 27))
  if not again and max > 0 and attempts >= max then return {'X', attempts} end
  -- A caller that does not compare must not switch the comparison off for others.
  if theirs ~= none then print = theirs end
end
if not again then
  local time = redis.call('TIME')
  fence = math.max(fence + 1, tonumber(time[1]) * 1000000 + tonumber(time[2]))
  attempts = math.min(attempts + 1, 65535)
end
local w = string.sub(mine, 1, 18) .. be(fence, 7) .. be(attempts, 2) .. string.sub(mine, 28, 36) .. print
if r ~= '' then
  redis.call('SET', KEYS[1], w, 'PX', ARGV[2])
elseif not redis.call('SET', KEYS[1], w, 'PX', ARGV[2], 'NX') then
  return {'V', ''} -- an empty string stands there
end
return {'A', w}
