-- What nearly every completion is, in front of everything that the others need: the claim that stands
-- there is the very one that ends. Redis before 7 goes the long way, for the sake of a full memory.
--
-- Returns 1               stored, as {'C', 0}; a table costs the server half a microsecond
if DECLARED then
  local sub = string.sub
  local there, done = redis.call('GETRANGE', KEYS[1], 0, 55), ARGV[1]
  -- Owner, fence and attempts; and the fingerprint with the types.
  local state = sub(there, 1, 2)
  if (state == '2P' or state == '2W') and sub(there, 3, 27) == sub(done, 3, 27)
      and sub(there, 37) == sub(done, 37, 56) then
    redis.call('SET', KEYS[1], done, 'PX', ARGV[2])
    if state == '2W' then redis.pcall(PUBLISH, KEYS[1], '') end
    return 1
  end
end
