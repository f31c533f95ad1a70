"""Tables, plots and the page. topics/ has a file for each topic; the other files serve several topics."""
