"""Layouts in which test collections are published: one small file each, read by `interlingua.data.collection`."""
