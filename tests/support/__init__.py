"""What several tests share: tiny models and tasks, slow references, planted heads, commands to be killed, a browser."""
