RESHARD = False
