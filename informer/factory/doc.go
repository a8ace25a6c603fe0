// Package factory makes generated SharedInformerFactories wake from the file: those of
// client-go, and those that code-generator makes for any other project.
//
// [Wake] registers informers over the file in a factory, before the program asks the
// factory for them. The factory's informers, listers, ForResource, Start,
// WaitForCacheSync and Shutdown then work as before. Its namespace, tweaked list
// options, resync periods and transform apply. Types that are not named stay in memory.
// [WakeFile] is the short form for programs that use the file for nothing else.
//
// The packages dynamicinformer and metadatainformer beside this one replace client-go's
// of the same names, whose factories accept no informers from outside.
package factory
