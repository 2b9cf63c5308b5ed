"""The trusted side: what holds, asks and believes nothing."""
