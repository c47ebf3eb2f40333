SELECT @live AS [live];
