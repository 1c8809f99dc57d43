-- Reads a copy and its life at one moment. Changes nothing.
--
-- KEYS[1]  the copy
--
-- Returns {'N'} none; {'D', …}, {'G', …} one, see `answer`
local seen, refusal = look(MOST + 1)
if refusal then return refusal end
if not seen then return {'N'} end
return answer(seen)
