"""A drinks kiosk for distrl: tasks, device, judge, policy and algorithm, one file each."""
