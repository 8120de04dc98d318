-- What the staged rows give is kept in the comparison's own table.
drop function if exists bds.texts(jsonb);
