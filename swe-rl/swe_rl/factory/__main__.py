import sys

from swe_rl.factory.make import main

sys.exit(main())
