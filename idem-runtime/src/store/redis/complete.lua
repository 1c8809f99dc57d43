-- Stores an answer. Atomic: a script is one moment.
--
-- KEYS[1]  the record
-- ARGV[1]  the finished record: header (52 bytes, see claim.lua) and answer
-- ARGV[2]  how long it lives, milliseconds
--
-- Returns {'C', late}             stored; late is 1 where the claim had lapsed or was lost
--         {'D', life, record}     another attempt's answer is there and counts
--         {'G', life, bytes}      the same, and so large that it is read with GET
--         {'S', left}             another attempt holds the claim, for so many milliseconds; 0 where
--                                 that has lapsed and the outcome is no success
--         {'M'}                   another request has this key
--         {'V', start}, {'I'}     as in claim.lua
local function num(s)
  local n = 0
  for i = 1, #s do n = n * 256 + string.byte(s, i) end
  return n
end

local c = ARGV[1]
local r = redis.call('GETRANGE', KEYS[1], 0, 8243)
if r == '' then
  -- Lost or expired: what was done is still the truth.
  if not redis.call('SET', KEYS[1], c, 'PX', ARGV[2], 'NX') then return {'V', ''} end
  redis.pcall('PUBLISH', KEYS[1], '')
  return {'C', 1}
end
local state = string.sub(r, 2, 2)
if string.sub(r, 1, 1) ~= '1' or #r < 52 or not string.find('PRDEUT', state, 1, true) then
  return {'V', string.sub(r, 1, 52)}
end
local life = redis.call('PTTL', KEYS[1])
if life < 0 then return {'I'} end
local mine = string.sub(r, 3, 18) == string.sub(c, 3, 18)
local theirs, none = string.sub(r, 37, 52), string.rep('\0', 16)
local print = string.sub(c, 37, 52)
if theirs ~= print and theirs ~= none and print ~= none then return {'M'} end
if state ~= 'P' and state ~= 'R' then
  if mine then return {'C', 0} end -- our own completion, sent again
  if #r == 8244 then return {'G', life, redis.call('STRLEN', KEYS[1])} end
  return {'D', life, r}
end
if state == 'P' and not mine then
  local left = num(string.sub(r, 28, 31)) - math.max(num(string.sub(r, 32, 36)) - life, 0)
  local outcome = string.sub(c, 2, 2)
  if left > 0 or (outcome ~= 'D' and outcome ~= 'T') then return {'S', math.max(left, 0)} end
end
-- Ours; or given back by a later attempt; or a success whose successor's lease has lapsed: better
-- than another run. An error is not: the successor may be alive and succeed. Attempts, the higher
-- fence and the known fingerprint stay.
local fence = string.sub(r, 19, 25)
if num(fence) < num(string.sub(c, 19, 25)) then fence = string.sub(c, 19, 25) end
if theirs ~= none then print = theirs end
local kept = fence .. string.sub(r, 26, 27) .. string.sub(c, 28, 36) .. print
if kept ~= string.sub(c, 19, 52) then
  c = string.sub(c, 1, 18) .. kept .. string.sub(c, 53)
end
redis.call('SET', KEYS[1], c, 'PX', ARGV[2])
redis.pcall('PUBLISH', KEYS[1], '')
return {'C', mine and 0 or 1}
