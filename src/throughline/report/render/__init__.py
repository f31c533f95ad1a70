"""Tables, plots and the page. topics/ has a file for each topic; the others are what several topics need."""
