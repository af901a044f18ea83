"""What is shown and done: screens by browser, their elements, actions, and the sites of tasks."""
