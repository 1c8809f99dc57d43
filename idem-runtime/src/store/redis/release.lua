-- Gives a key back. The record keeps the life that it has left: it carries counter and fence.
-- Atomic: a script is one moment.
--
-- KEYS[1]  the record (header: see claim.lua)
-- ARGV[1]  the owner that gives it back, 16 bytes
-- ARGV[2]  1 if the attempt counts as abandoned, else 0
--
-- Returns {'C'} free, now or since an earlier send; {'S'} another's, nothing changed; {'N'} no record;
--         {'V', start}, {'I'} as in claim.lua
local function num(s)
  local n = 0
  for i = 1, #s do n = n * 256 + string.byte(s, i) end
  return n
end

local r = redis.call('GETRANGE', KEYS[1], 0, 51)
if r == '' then
  if redis.call('EXISTS', KEYS[1]) == 1 then return {'V', ''} end
  return {'N'}
end
local state = string.sub(r, 2, 2)
if string.sub(r, 1, 1) ~= '1' or #r < 52 or not string.find('PRDEUT', state, 1, true) then
  return {'V', r}
end
if redis.call('PTTL', KEYS[1]) < 0 then return {'I'} end
if string.sub(r, 3, 18) ~= ARGV[1] then return {'S'} end
if state == 'R' then return {'C'} end
if state ~= 'P' then return {'S'} end
local attempts = num(string.sub(r, 26, 27))
if ARGV[2] == '0' and attempts > 0 then attempts = attempts - 1 end
local low = attempts % 256
local w = '1R' .. string.sub(r, 3, 25) .. string.char((attempts - low) / 256, low) .. '\0\0\0\0' .. string.sub(r, 32, 52)
redis.call('SET', KEYS[1], w, 'KEEPTTL')
redis.pcall('PUBLISH', KEYS[1], '')
return {'C'}
