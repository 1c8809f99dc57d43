-- Which rights the user has, found without touching anybody's keys.
--
-- ARGV[1]     a name that nobody uses, for a key and a channel
-- ARGV[2..4]  the commands that tell and are told: PUBLISH SUBSCRIBE UNSUBSCRIBE, or in a cluster
--             SPUBLISH SSUBSCRIBE SUNSUBSCRIBE
-- ARGV[5..]   commands that a script may not call, and that are needed here: WAIT, CLUSTER|SLOTS
-- Returns     how, write, settings, refused command, …
--   how       'asked': the server was asked about each right; 'tried': it cannot be asked (Redis 6),
--             so that each command was tried, but for those that a script may not call
--   write     what a write is refused with; '' for none
--   settings  '1' if the user may read them, '0' if not, '' if that is not known
--
-- The key is in ARGV, so that a user without a right to it still gets an answer. It lives for 1 ms.

local name = ARGV[1]
local write = {'SET', name, '', 'PX', '1'}
local open = {
  {'EVALSHA', string.rep('0', 40), '0'},
  {'GET', name}, {'GETRANGE', name, '0', '0'}, write, {'TIME'}, {'PTTL', name},
  {'PEXPIRE', name, '1'}, {'STRLEN', name}, {'EXISTS', name},
  {ARGV[2], name, ''}, {ARGV[3], name}, {ARGV[4], name},
}
local untried = {EVALSHA = true, [ARGV[3]] = true, [ARGV[4]] = true}
local ask = redis.acl_check_cmd

local function refusal(call)
  local reply = redis.pcall(unpack(call))
  return type(reply) == 'table' and reply.err or ''
end

local function lacks(call)
  if ask then
    -- A command that the server does not know is an error.
    local known, may = pcall(ask, unpack(call))
    return not (known and may)
  end
  if untried[call[1]] then return false end
  local said = refusal(call)
  for _, words in ipairs({'NOPERM', 'ACL failure', 'executing the script', 'nknown'}) do
    if string.find(said, words, 1, true) then return true end
  end
  return false
end

local settings = ''
if ask then settings = lacks({'CONFIG', 'GET', 'save'}) and '0' or '1' end
local result = {ask and 'asked' or 'tried', '', settings}
for _, call in ipairs(open) do
  if lacks(call) then
    result[#result + 1] = call[1]
  elseif call == write then
    result[2] = refusal(write)
  end
end
for i = 5, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '[^|]+') do words[#words + 1] = word end
  if ask and lacks(words) then result[#result + 1] = ARGV[i] end
end
return result
