-- What losers wanted of others is dropped.
DELETE e FROM @event AS e WHERE NOT EXISTS (SELECT 1 FROM @head AS w WHERE w.[k] = e.[k] AND w.[won] > 0);
DELETE c FROM @create AS c WHERE NOT EXISTS (SELECT 1 FROM @head AS w WHERE w.[k] = c.[k] AND w.[won] > 0);
DELETE m FROM @message AS m WHERE NOT EXISTS (SELECT 1 FROM @head AS w WHERE w.[k] = m.[k] AND w.[won] > 0);
