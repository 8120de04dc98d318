-- Links are moved for all open rows at once.
drop function if exists bds.make_room_for(text, text[], bigint, bigint);
drop function if exists bds.find_crowded(text, text[], bigint);
