# noqa: A005 - never imported as `queue`
