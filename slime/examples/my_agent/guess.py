"""An environment of your own: the model finds a number by asking whether its guess is too small or too large.

python slime/train_async.py ... --custom-generate-function-path slime/examples/my_agent/guess.py --reward-key score
with rows such as {"input": "Find my number from 1 to 9.", "label": "4"}.
"""

from __future__ import annotations

from slime.agents import Action, EpisodeLimits, Observation, Outcome, Start, Task, Tool, agent

GUESS = Tool(
    "guess",
    "Says whether the number is right, too small or too large.",
    {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
)


class GuessNumber:
    """One episode."""

    async def reset(self, task: Task) -> Start:
        self.number, self.is_solved, self.guesses = int(task.label), False, 0
        return Start([{"role": "user", "content": str(task.prompt)}], (GUESS,))

    async def step(self, action: Action) -> Observation:
        if not action.calls:
            return Observation(done=True)  # the model has stopped guessing, so the episode ends
        guess = int(action.calls[0].arguments["number"])
        self.guesses += 1
        self.is_solved = guess == self.number
        words = "right" if self.is_solved else "too small" if guess < self.number else "too large"
        return Observation([{"role": "tool", "content": words}], done=self.is_solved)

    async def evaluate(self) -> Outcome:
        return Outcome(
            1.0 - 0.1 * self.guesses if self.is_solved else -1.0, self.is_solved, {"guesses": self.guesses}
        )

    async def close(self) -> None:
        """Does nothing: there are no resources to release."""


generate = agent(GuessNumber, EpisodeLimits(turns=6))
