-- Removes a copy, and notifies the watchers of the key.
--
-- ARGV[1]  owner whose copy is removed, 16 bytes; an empty string for any owner
--
-- Returns {'C'} removed; {'S'} the copy has another owner, nothing changed; {'N'} no copy
local seen, refusal = look(HEADER)
if refusal then return refusal end
local code = 'N'
if seen and (ARGV[1] == '' or seen.owner == ARGV[1]) then
  -- Not DEL, which the documented rights do not include.
  redis.call('PEXPIRE', KEYS[1], 0)
  code = 'C'
elseif seen then
  code = 'S'
end
tell()
return {code}
