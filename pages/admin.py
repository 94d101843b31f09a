"""What runs on this server, for whoever runs it."""

from fedviz.ui import admin

admin.show()
