"""From numbers to heights, colours, lines and axes: chosen from the data, with the same rules in figures and pages."""
