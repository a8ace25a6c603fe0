//go:build two

package main

const build = "two"
