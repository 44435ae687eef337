"""What pages under docs/ are made with: findings from results/, definitions from plugins, executed tutorials."""
