/* to come */ extern int rg_unused;
