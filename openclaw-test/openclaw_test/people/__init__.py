"""The three people of the evaluation: a student, a teaching assistant, a teacher. They talk through OpenClaw."""
