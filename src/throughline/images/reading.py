KIND = "images"
