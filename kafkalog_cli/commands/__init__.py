"""One module a command: what it is asked, which library function answers, how it is shown."""
