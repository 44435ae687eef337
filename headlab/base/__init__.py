"""What every part rests on: errors, head names and masks, the plugin registry."""
