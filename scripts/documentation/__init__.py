"""What the pages under docs/ are made with: findings from results/, definitions from the plugins, executed tutorials."""
