"""Display and actions: screens by browser, their elements, actions, and the sites of tasks."""
