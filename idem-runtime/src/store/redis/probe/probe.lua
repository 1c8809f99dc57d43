-- Finds the user's rights without touching keys of the application.
--
-- ARGV[1]     a name that is not in use, for a key and a channel
-- ARGV[2..4]  the commands of notifications: PUBLISH SUBSCRIBE UNSUBSCRIBE, or in a cluster
--             SPUBLISH SSUBSCRIBE SUNSUBSCRIBE
-- ARGV[5..]   required commands that a script may not call: WAIT, CLUSTER|SLOTS
-- Returns     how, write, settings, refused command, …
--   how       'asked': the server was queried for each right; 'tried': it has no such query (Redis 6),
--             so that each command was tried, except commands that a script may not call and commands
--             that idem does not send to such a server
--   write     the error that refuses a write; '' for none
--   settings  '1' if the user may read them, '0' if not, '' if that is not known
--
-- The key is in ARGV, so that a user without a right to it still receives a reply. It lives for 1 ms.

local name = ARGV[1]
local write = {'SET', name, '', 'PX', '1'}
local open = {
  {'EVALSHA', string.rep('0', 40), '0'},
  {'GET', name}, {'GETRANGE', name, '0', '0'}, write, {'TIME'}, {'PTTL', name},
  {'PEXPIRE', name, '1'}, {'STRLEN', name}, {'EXISTS', name},
  {'MGET', name}, {'RENAME', name, name},
  {ARGV[2], name, ''}, {ARGV[3], name}, {ARGV[4], name},
}
-- A server that has no such query gets no MGET and no RENAME.
local untried = {EVALSHA = true, MGET = true, RENAME = true, [ARGV[3]] = true, [ARGV[4]] = true}
local ask = redis.acl_check_cmd

local function refusal(call)
  local reply = redis.pcall(unpack(call))
  return type(reply) == 'table' and reply.err or ''
end

local function lacks(call)
  if ask then
    -- The server raises an error for a command that it does not know.
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
