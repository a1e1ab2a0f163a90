-- Reads which store this is and how far its clock was. It locks nothing.
SELECT identity::text, clock FROM punctual.store
