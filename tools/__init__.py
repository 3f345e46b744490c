"""Scripts that build what the package ships."""
