-- What losers wanted of others is dropped.
DELETE e FROM @event AS e WHERE NOT EXISTS (SELECT 1 FROM @winner AS w WHERE w.[k] = e.[k]);
DELETE c FROM @create AS c WHERE NOT EXISTS (SELECT 1 FROM @winner AS w WHERE w.[k] = c.[k]);
DELETE m FROM @message AS m WHERE NOT EXISTS (SELECT 1 FROM @winner AS w WHERE w.[k] = m.[k]);
